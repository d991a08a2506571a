// Package approval runs WAIT_APPROVAL: a stage that waits until enough users have
// approved the deployment, or one has rejected it.
//
// It answers the commands APPROVE_STAGE and REJECT_STAGE. Each is answered once, after
// its effect is stored in the stage's metadata, so that a crash in between neither
// loses a vote nor counts it twice. Execute answers the commands of a running stage,
// Run all others.
//
// With requireOther, the approvals of those who requested the deployment or committed what
// it deploys do not count; see party.go.
//
// Authentication is up to the control API. The scheduler enforces the stage's deadline,
// which no restart extends.
package approval
