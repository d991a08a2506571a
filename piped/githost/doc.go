// Package githost is a client of Git hosts: GitHub, GitLab, Gitea and Forgejo, Bitbucket
// Cloud and Bitbucket Data Center. It parses webhook deliveries: it verifies their
// signature and returns the pushed branches or the pull request with a new head. And it
// calls the API of the first three: to open pull requests, to comment on them, to set
// commit statuses and GitHub deployments; with a token or as a GitHub App.
//
//	receiver.go signature.go proposal.go        webhooks; one more file for each host
//	api.go pullrequest.go status.go comment.go  operations of the API
//	githubapi.go gitlabapi.go giteaapi.go       their implementation for each host
//	githubapp.go environment.go                 what only GitHub has
//	refusal.go paced.go                         errors of hosts, and their rate limits
//
// A delivery is only a hint which repository to fetch; its content is never used as state.
// The package stores nothing. Errors and logs contain neither secrets nor payloads.
//
// To test a receiver, sign a payload as the host does and pass the request to
// Receiver.Parse; testdata holds payloads of each host. Package githosttest is a fake
// GitHub.
package githost
