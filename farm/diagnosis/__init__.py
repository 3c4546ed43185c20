"""What is wrong with a farm, in plain words: judgements of values that others have read.

Pure: no clock, no I/O. Each module judges one part, and says of all that is wrong what to do.
"""
