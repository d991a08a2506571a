// Package analysis holds the options by which a deployment is analysed: checks of
// metrics, logs and HTTP answers, and the templates (kind AnalysisTemplate) that
// say what checks have in common. It owns their fields, defaults and rules.
//
// It sends no requests and reads no files: the caller passes the bytes of a
// template. Package executor/analysis runs the checks.
package analysis
