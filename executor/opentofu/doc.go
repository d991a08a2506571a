// Package opentofu runs the stages of OpenTofu and Terraform applications: TERRAFORM_PLAN,
// TERRAFORM_APPLY, TERRAFORM_SYNC and ROLLBACK.
//
//	executor.go  the stages
//	session.go   the files and the program of one stage
//	apply.go     an apply with its intent, its retries, and what follows an interruption
//	conclude.go  the state after an apply
//	late.go      what is left after stages have ended
//	record.go    what is kept of a deployment: the approved plan, then the state
//
// A plan is saved, encrypted, with the deployment, and its digest with the stage: the plan that
// was seen, and approved, is the plan that is applied. An apply is not idempotent, so an intent is
// stored before it. An apply that was interrupted is not repeated: a new plan is made, and applied
// only if it is what is left of the saved one.
package opentofu
