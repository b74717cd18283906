"""People as teachers: a server with pages and an open interface, its storage, and the desk that a run asks through.

The server is a process of its own and imports no torch; `apil.teachers.People` is the teacher.
"""
