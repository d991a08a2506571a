// Package approval runs WAIT_APPROVAL: a stage that waits until people have
// approved the deployment, or one has rejected it.
//
// It owns the answers to the commands APPROVE_STAGE and REJECT_STAGE. Each is
// answered once, after its effect is stored in the stage's metadata; so a crash
// in between loses no approval and counts none twice. While the stage runs,
// Execute answers; Run answers whatever names a stage that does not wait.
//
// It never decides who may use the control API, and sets no timer: the stage's
// deadline is the scheduler's, and no restart extends it.
package approval
