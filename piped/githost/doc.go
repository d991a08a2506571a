// Package githost speaks with the services that host Git repositories: GitHub,
// GitLab, Gitea and Forgejo, Bitbucket Cloud and Bitbucket Data Center. It owns
// the reading of webhook deliveries: whether the sender knows the webhook's
// secret, which branches of which repository it says were pushed, and which pull
// request has a new head. And it owns the API of the first three: opening pull
// requests, commenting on them, the statuses of commits, and GitHub's deployments;
// with a token, or as a GitHub App.
//
//	receiver.go signature.go proposal.go        webhooks; a file for each host beside them
//	api.go pullrequest.go status.go comment.go  what the API can do
//	githubapi.go gitlabapi.go giteaapi.go       how each host does it
//	githubapp.go environment.go                 what only GitHub has
//	refusal.go paced.go                         what hosts refuse, and how they are spared
//
// A delivery is a hint and nothing more: what the package returns says where to
// look, never what is there. It starts nothing, stores nothing, and never shows a
// secret or a payload, neither in an error nor in a log.
//
// To test with it, sign a payload as the host does and hand the request to
// Receiver.Parse; testdata holds payloads in the shape of each host. Package
// githosttest is a GitHub to be told something.
package githost
