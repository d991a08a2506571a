package deploy

// Topic is a kind of row in the change feed.
type Topic string

// The topics of the change feed.
const (
	TopicApplication Topic = "application"
	TopicDeployment  Topic = "deployment"
	TopicCommand     Topic = "command"
	TopicStageLog    Topic = "stage_log"
	TopicRollout     Topic = "rollout"
	TopicEvent       Topic = "event"
	TopicAPIKey      Topic = "api_key"          // one was disabled
	TopicRegistered  Topic = "registered_event" // one was registered or handled
	// TopicRegistration reports an API change to the list of applications, to a platform
	// provider, or to whether applications or the agent are enabled. ID is the application's,
	// "" for all applications.
	TopicRegistration Topic = "registration"
	TopicDrift        Topic = "drift" // an application's drift report was written; ID is the application's
	// TopicEvaluated reports new evaluated commits of applications. ID is the commit.
	TopicEvaluated Topic = "evaluated"
	// TopicPropagation reports a written Propagation. ID is "cluster/" and the key of
	// the workload.
	TopicPropagation Topic = "propagation"
	TopicChain       Topic = "chain"      // a deployment of the chain was created or has ended, or its command was rejected
	TopicSession     Topic = "session"    // one was ended, or the groups of its user have changed
	TopicDeliveries  Topic = "deliveries" // events wait for a receiver; ID is the receiver
	// TopicOwnership reports partitions that a replica has released.
	TopicOwnership Topic = "ownership"
	// TopicPoll requests a poll of a repository. ID is the repository's, "" for all.
	TopicPoll Topic = "poll"
	// TopicPullPreview reports the preview of a pull request that was written, decided on or
	// deleted. ID is its key.
	TopicPullPreview Topic = "pull_preview"
)

// Topics lists every topic.
func Topics() []Topic {
	return []Topic{
		TopicApplication, TopicDeployment, TopicCommand, TopicStageLog, TopicRollout, TopicEvent, TopicAPIKey,
		TopicRegistered, TopicRegistration, TopicDrift, TopicEvaluated, TopicPropagation, TopicChain, TopicSession, TopicDeliveries,
		TopicOwnership, TopicPullPreview, TopicPoll,
	}
}

// Change is a hint that a row was written and must be read again. ID is the row's ID,
// or the deployment's for stage logs. For a chain, ApplicationID is that of the changed
// node. Hints are never lost, but may be merged or repeated.
type Change struct {
	Topic         Topic
	ID            string
	ApplicationID string
	// Status is the written status of a deployment, so that subscribers can skip rows
	// that do not concern them; "" for other rows and when unknown.
	Status Status
}
