package deploy

import "time"

// AnalysisVerdict is what a check of an analysis came to when it looked once.
type AnalysisVerdict string

// The verdicts. NO_DATA is neither good nor bad: there was nothing to judge.
const (
	AnalysisOK     AnalysisVerdict = "OK"
	AnalysisFailed AnalysisVerdict = "FAILED"
	AnalysisNoData AnalysisVerdict = "NO_DATA"
	AnalysisError  AnalysisVerdict = "ERROR" // nobody answered, or not to this question
)

// AnalysisSample is one look of one check. The samples of a check are a series
// over time; all of a stage are its progress, from which it goes on after a
// restart.
type AnalysisSample struct {
	ApplicationID string
	DeploymentID  string
	StageID       string
	// Check is unique in its stage and stays the same over restarts, such as
	// metrics[0]; Name is what people call it.
	Check string
	Name  string
	// Position numbers the looks of a check: it is how many of its intervals had
	// passed.
	Position int64
	At       time.Time
	Verdict  AnalysisVerdict
	Counted  bool      // as a failure
	Values   []float64 // what was measured; finite
	Compared []float64 // what it was compared with; finite
	Text     string    // for a person: what was seen, and what was expected
}

// AnalysisPassed is when the last analysis of a kind that an application passed
// began.
type AnalysisPassed struct {
	ApplicationID string
	Analysis      string // which one of the application's, such as the ID of its stage
	DeploymentID  string
	StartedAt     time.Time
}
