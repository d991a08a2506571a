package config

// Adopt says what becomes of live objects that stand where those of an application
// belong and are not its own, before its first deployment.
type Adopt string

// The ways of taking over. AdoptAuto takes live objects over; AdoptReview holds the
// application until a person has permitted it.
const (
	AdoptAuto   Adopt = "auto"
	AdoptReview Adopt = "review"
)

// Values implements strict.Enum.
func (Adopt) Values() []string { return []string{string(AdoptAuto), string(AdoptReview)} }
