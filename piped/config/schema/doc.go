// Package schema makes JSON Schemas (draft 2020-12) of the Go types that package
// strict decodes into, so that editors complete and check what people write. The
// types are the only source: a key, a value of an enumeration or a default stands
// nowhere else.
//
// A schema accepts every file that the parser accepts and that is written
// plainly: without quotes around numbers, and with true and false as the only
// booleans. It refuses unknown keys, wrong types and unknown values; what depends
// on several fields is left to the parser.
//
// The package knows no configuration key itself and does no input or output.
package schema
