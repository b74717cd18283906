"""The files of `apil.files`, under the name that they had."""

from apil.files import empty_folder as empty_folder
from apil.files import locked as locked
from apil.files import make_folder as make_folder
from apil.files import read_json as read_json
from apil.files import read_rows as read_rows
from apil.files import remove_leftovers as remove_leftovers
from apil.files import taken as taken
from apil.files import write_bytes as write_bytes
from apil.files import write_json as write_json
from apil.files import write_text as write_text
