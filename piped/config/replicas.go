package config

// Replicas is what the replicas of an agent do.
type Replicas string

// With ReplicasStandBy one replica works and the others stand by. With ReplicasShare those that stand
// by run deployments, too.
const (
	ReplicasStandBy Replicas = "standby"
	ReplicasShare   Replicas = "share"
)

// Values implements strict.Enum.
func (Replicas) Values() []string { return []string{string(ReplicasStandBy), string(ReplicasShare)} }
