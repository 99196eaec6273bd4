print("name, date")
