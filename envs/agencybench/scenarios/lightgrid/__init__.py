"""game/lightgrid: a puzzle in which every move toggles a cell and its neighbours."""
