"""Networks, one file each: a new file with one subclass of `AbstractArchitecture` is a model of the file's name."""
