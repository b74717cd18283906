"""R2R: following instructions through the rooms of a house."""
