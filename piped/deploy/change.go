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
	TopicRegistered  Topic = "registered_event" // one was registered or has been handled
	// TopicRegistration: which applications there are, whether they or the agent
	// are enabled, or where one is deployed to, was changed by request. ID is the
	// application's, "" when it is about all of them.
	TopicRegistration Topic = "registration"
	TopicDrift        Topic = "drift" // what is known of an application's drift; ID is the application's
	// TopicEvaluated: the evaluated commit of applications was moved. ID is the commit.
	TopicEvaluated Topic = "evaluated"
	// TopicPropagation: what the pods of a workload have been told was written. ID is
	// "cluster/" and the key of the workload.
	TopicPropagation Topic = "propagation"
	TopicChain       Topic = "chain" // a deployment of the chain was made or has ended, or its command was refused
)

// Change is a hint that a row was written: read it again. ID is the row's ID;
// for stage logs that of the deployment. For a chain, ApplicationID is that of the
// node it is about. Hints are never lost but may be merged
// and may come twice.
type Change struct {
	Topic         Topic
	ID            string
	ApplicationID string
	// Status is what a deployment was written as, so that nobody need read one
	// that does not concern them; "" of other rows, and when it is not known.
	Status Status
}
