// Package bigquery streams ended rollouts and scalings into a BigQuery table, one row
// per record, with tabledata.insertAll. The record's ID is the insert ID, so that BigQuery
// deduplicates a row that is sent again.
//
// It neither creates the table nor changes its schema. Errors contain no credentials.
package bigquery
