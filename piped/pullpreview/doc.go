// Package pullpreview deploys pull requests: it keeps a preview application for each application
// that an open pull request touches and that has spec.preview.
//
//	previewer.go  the component, and which pull requests have a preview
//	wanted.go     what a pull request should have, from its merge
//	fork.go       which pull requests of forks may be deployed
//	routed.go     removes what is next to the applications of the branch
//	apply.go      creates, updates, heals and removes preview applications
//	state.go      what a preview is like now
//	record.go     what is stored of it, and when its time is over
//	report.go     comment, commit status and environment on the Git host
//
// A preview application is an application like any other: it is planned, deployed, watched and
// removed by the components that do so for all. This package only decides that it exists and at
// which commit. The state is in the store: an application that is not deleted is removed once its
// pull request is closed, also after a restart. What a webhook says is only a reason to ask the
// host; a pull request counts as closed only if the host says so.
//
// With mode namespace, all objects of a preview are in one namespace for each pull request, which the
// package creates and deletes. With mode route they are next to those of the branch, and are deleted one by
// one. Pull requests of forks are deployed only where the branch allows it, each head only with a label
// that a maintainer has set for it. A preview gets no secrets, except those in its namespace that the branch
// names.
package pullpreview
