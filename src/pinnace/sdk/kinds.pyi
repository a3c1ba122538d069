from pinnace.model.typed_objects import *
