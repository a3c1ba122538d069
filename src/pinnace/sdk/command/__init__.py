"""`pinnace-operator`, the command of an operator's image: it runs operators, and explains their reconciles."""
