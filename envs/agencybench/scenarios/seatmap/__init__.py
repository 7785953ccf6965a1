"""frontend/seatmap: a page on which seats are chosen, by mouse and keyboard, at any width."""
