"""ALFWorld: household tasks in text rooms, the official games included."""
