package deploy

import "time"

// AnalysisVerdict is the result of one evaluation of an analysis check.
type AnalysisVerdict string

// The verdicts. NO_DATA is neither success nor failure.
const (
	AnalysisOK     AnalysisVerdict = "OK"
	AnalysisFailed AnalysisVerdict = "FAILED"
	AnalysisNoData AnalysisVerdict = "NO_DATA"
	AnalysisError  AnalysisVerdict = "ERROR" // the provider did not answer, or rejected the query
)

// AnalysisSample is one evaluation of one check. The samples of a stage are its stored
// progress: after a restart the stage resumes from them.
type AnalysisSample struct {
	ApplicationID string
	DeploymentID  string
	StageID       string
	// Check identifies the check within its stage across restarts, such as metrics[0].
	// Name is the display name.
	Check string
	Name  string
	// Position is the number of intervals before the evaluation.
	Position int64
	At       time.Time
	Verdict  AnalysisVerdict
	Counted  bool      // the evaluation counts as a failure
	Values   []float64 // the measured values; finite
	Compared []float64 // the values that they were compared with; finite
	Text     string    // measured and expected values, for users
}

// AnalysisPassed records when the last successful analysis of an application began.
type AnalysisPassed struct {
	ApplicationID string
	Analysis      string // identifies the analysis, such as the stage ID
	DeploymentID  string
	StartedAt     time.Time
}
