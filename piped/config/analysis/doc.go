// Package analysis holds the options by which a deployment is analysed: checks of
// metrics, logs and HTTP answers, and the templates (kind AnalysisTemplate) that
// say what checks have in common. It owns their fields, defaults and rules.
//
// It asks nobody anything and reads no file: who has a template's bytes hands
// them over. Package executor/analysis carries the checks out.
package analysis
