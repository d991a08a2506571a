// Package slack posts notices to a Slack channel in PipeCD's format: one attachment with
// a title, a text, a colour by result, and fields. It uses an incoming webhook, or a bot
// token and chat.postMessage. With a token, the notices of one deployment form one
// thread, and its end is also shown in the channel.
//
// The package translates Slack's error codes into errors with instructions for users. Errors
// and logs contain neither the webhook's address nor the token.
package slack
