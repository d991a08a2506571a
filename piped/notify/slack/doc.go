// Package slack tells notices to a Slack channel, as PipeCD does: one attachment with
// a title, a text, a colour by how something went, and fields. It posts to an incoming
// webhook, or with a bot's token through chat.postMessage; then what is told of one
// deployment is one thread, and how the deployment ended is shown in the channel too.
//
// It owns what a message says and what Slack's refusals mean to a person. It never
// shows the address of a webhook or a token, neither in errors nor in logs.
package slack
