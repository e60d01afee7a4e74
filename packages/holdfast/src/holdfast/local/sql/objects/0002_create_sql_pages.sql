-- The objects that have tables, and the pages of their databases: place is (number << 32) + the number of the page.
CREATE TABLE sql_files (
  number INTEGER PRIMARY KEY,
  object TEXT NOT NULL UNIQUE
);

CREATE TABLE sql_pages (
  place   INTEGER PRIMARY KEY,
  content BLOB NOT NULL
);
