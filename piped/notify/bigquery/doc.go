// Package bigquery streams the ends of rollouts and scalings into a table of BigQuery,
// one row for each: tabledata.insertAll, with the record's ID as insert ID, so that a
// row that is sent again is not there twice as long as BigQuery remembers it.
//
// It makes no table and changes no schema, and never shows what proves who it is.
package bigquery
