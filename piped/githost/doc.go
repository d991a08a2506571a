// Package githost speaks with the services that host Git repositories: GitHub,
// GitLab, Gitea and Forgejo, Bitbucket Cloud and Bitbucket Data Center. It owns
// the reading of webhook deliveries: whether the sender knows the webhook's
// secret, and which branches of which repository it says were pushed; and it opens
// pull requests through the API of the first three.
//
// A delivery is a hint and nothing more: what the package returns says where to
// look, never what is there. It starts nothing and never shows a secret or a
// payload, neither in an error nor in a log.
//
// To test with it, sign a payload as the host does and hand the request to
// Receiver.Parse; testdata holds payloads in the shape of each host.
package githost
