"""code/units: mend, extend, test and release a package for exact arithmetic with units."""
