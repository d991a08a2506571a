// Package backup is the format in which all that an agent keeps stands in one file: what
// its store holds at one moment, and the files of its data directory that cannot be made
// again. Write writes it while the agent runs, Read reads it, and checks it whole.
//
// A backup is a tar archive, compressed with gzip, of these members:
//
//	header.json               what it is: format, schema, version of piped, time, and the
//	                          tables with their columns, each after those it refers to
//	files/NAME                a file of the data directory
//	tables/NAME/0001.jsonl    rows of a table, one to a line, each the list of its values
//	                          in the order of the columns; bytes are base64
//	manifest.json             how many rows each table has, and the SHA-256 of each member
//	                          before this one, in their order
//
// It tells nothing of the engine: what came out of SQLite goes into PostgreSQL, and the
// other way round. Neither writing nor reading holds more than a few megabytes and one row.
//
// The package opens no file, and never decides where a backup goes or what becomes of what
// is in one. It holds keys: whoever has a backup has what the agent has.
package backup
