// Package backup defines the file format of backups. A backup contains the state of an agent:
// a snapshot of its store and the files of its data directory that cannot be regenerated. It
// omits sessions and sign-ins; users sign in again. Write creates it while the agent runs; Read
// reads and verifies it.
//
// A backup is a tar archive, compressed with gzip, with these members:
//
//	header.json               format, schema, version of piped, time, and the tables with
//	                          their columns, each after those it refers to
//	files/NAME                a file of the data directory
//	tables/NAME/0001.jsonl    rows of a table, one per line, each the list of its values
//	                          in the order of the columns; bytes are base64
//	manifest.json             number of rows of each table, and the SHA-256 of each
//	                          preceding member, in order
//
// The format is independent of the database engine: a backup of SQLite can be restored into
// PostgreSQL and vice versa. Writing and reading need only a few megabytes of memory plus
// one row.
//
// The package opens no files and does not restore; callers do. A backup contains keys and
// must be protected like the agent's data.
package backup
