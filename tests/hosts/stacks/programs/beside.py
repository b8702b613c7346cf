WORD = "of the program's own folder"
