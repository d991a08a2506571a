// Package analysis runs ANALYSIS stages: it evaluates metrics, logs and HTTP responses
// at intervals and decides whether a deployment may proceed.
//
//	executor.go   runs a stage; Analyze runs an analysis for other stages
//	analysis.go   one analysis: its checks, clock and progress
//	build.go      creates the checks from the options
//	describe.go   what is stored of the checks, for those who follow the analysis
//	check.go      one check: schedule, tolerated failures, log lines
//	metric.go     metric checks: THRESHOLD and the comparisons
//	http.go       HTTP checks
//	log.go        log checks
//	template.go   templates of a repository, and rendering of queries
//
// Package provider queries the analysis providers, package stats compares samples.
//
// The samples in the store are also the progress of an analysis: after a restart it
// resumes and ends at the same time as without one.
package analysis
