package githost

import (
	"net/http"
)

// The events of Bitbucket that are handled.
const (
	bitbucketEvent      = "X-Event-Key"
	bitbucketSignature  = "X-Hub-Signature"
	bitbucketCloudPush  = "repo:push"
	bitbucketServerPush = "repo:refs_changed"
	bitbucketServerPing = "diagnostics:ping"
)

// bitbucket handles Bitbucket Cloud and Bitbucket Data Center, as documented in "Event
// payloads" on support.atlassian.com and "Event payload" on confluence.atlassian.com.
// They share their headers but no event.
func bitbucket() host {
	return host{name: "Bitbucket", event: bitbucketEvent, open: openBitbucket, read: readBitbucket}
}

// openBitbucket verifies a delivery and returns its payload, nil for an unsigned
// connection test.
func openBitbucket(r *http.Request, secret []byte) ([]byte, error) {
	if r.Header.Get(bitbucketEvent) == bitbucketServerPing && r.Header.Get(bitbucketSignature) == "" {
		return nil, nil // Data Center's connection test, which is unsigned and has no effect
	}
	mac, err := signature(r, bitbucketSignature, "sha256=")
	if err != nil {
		return nil, err
	}
	payload, err := body(r)
	if err != nil {
		return nil, err
	}
	return payload, verify(payload, mac, secret)
}

// readBitbucket parses a push, or the connection test of Data Center; see host.read.
func readBitbucket(event string, payload []byte) (Push, error) {
	switch event {
	case bitbucketServerPing:
		return Push{Ping: true}, nil
	case bitbucketCloudPush:
		return readBitbucketCloud(payload)
	case bitbucketServerPush:
		return readBitbucketServer(payload)
	default:
		return Push{}, nil
	}
}

type link struct{ Href, Name string }

// bitbucketCloudChanges lists the new position of each reference; null for a deleted one.
// The repository has no clone URL; its page has the same URL.
type bitbucketCloudChanges struct {
	Push struct {
		Changes []struct{ New struct{ Type, Name string } }
	}
	Repository struct {
		Links struct{ HTML link }
	}
}

// readBitbucketCloud parses a push of Bitbucket Cloud. It ignores tags and deleted
// branches.
func readBitbucketCloud(payload []byte) (Push, error) {
	p, err := decode[bitbucketCloudChanges](payload)
	if err != nil {
		return Push{}, err
	}
	push := Push{Remotes: []string{p.Repository.Links.HTML.Href}}
	for _, c := range p.Push.Changes {
		if c.New.Type == "branch" {
			push.Branches = append(push.Branches, c.New.Name)
		}
	}
	return push, nil
}

type bitbucketServerChanges struct {
	Changes []struct {
		Ref    struct{ ID string }
		ToHash string
	}
	Repository struct {
		Links struct{ Clone []link }
	}
}

// readBitbucketServer parses a push of Bitbucket Data Center, formerly Bitbucket
// Server.
func readBitbucketServer(payload []byte) (Push, error) {
	p, err := decode[bitbucketServerChanges](payload)
	if err != nil {
		return Push{}, err
	}
	var push Push
	for _, clone := range p.Repository.Links.Clone {
		push.Remotes = append(push.Remotes, clone.Href)
	}
	for _, c := range p.Changes {
		push.Branches = append(push.Branches, moved(c.Ref.ID, c.ToHash))
	}
	return push, nil
}
