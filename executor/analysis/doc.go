// Package analysis runs ANALYSIS: it looks at metrics, logs and HTTP answers for
// a while, again and again, and says whether a deployment may go on.
//
//	executor.go   a stage from its options to its end; Analyze for other stages
//	analysis.go   one analysis: its checks side by side, its clock and its progress
//	build.go      the checks of an analysis, made of its options
//	check.go      one check: when it looks, what it tolerates, what it says
//	metric.go     numbers: THRESHOLD, and the comparisons
//	http.go       answers to HTTP requests
//	log.go        lines of logs
//	template.go   the templates of a repository, and what queries are filled in with
//
// Below, provider asks for numbers and lines, stats compares numbers.
//
// It owns the series of samples in the store, which are also its progress: after
// a restart an analysis goes on where it was and ends when it would have ended.
// It changes nothing that it looks at, and decides nothing but its own end.
package analysis
