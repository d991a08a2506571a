package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// receiver is what speaks the pack protocol with git-receive-pack: go-git's HTTP
// session, our sshSession.
type receiver interface {
	AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error)
	ReceivePack(context.Context, *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error)
	io.Closer
}

// receiveSession pushes to a server over the pack protocol.
type receiveSession struct {
	receiver
	capabilities *capability.List // after head
}

func (s *receiveSession) head(ctx context.Context, branch string) (plumbing.Hash, error) {
	refs, err := s.AdvertisedReferencesContext(ctx)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	s.capabilities = refs.Capabilities
	return readBranch(refs.References, branch), nil
}

func (s *receiveSession) push(w *watchdog, branch string, from, to plumbing.Hash, pack []byte) error {
	var messages bytes.Buffer
	req := packp.NewReferenceUpdateRequestFromCapabilities(s.capabilities)
	req.Commands = []*packp.Command{{Name: plumbing.NewBranchReferenceName(branch), Old: from, New: to}}
	req.Packfile = io.NopCloser(bytes.NewReader(pack))
	if s.capabilities.Supports(capability.Sideband64k) && req.Capabilities.Set(capability.Sideband64k) == nil {
		req.Progress = &limitedWriter{&messages, 4 << 10}
	}
	report, err := s.ReceivePack(w, req)
	if no := refused(report); no != nil {
		no.said = messages.String()
		return no
	}
	if err == nil && report == nil && s.capabilities.Supports(capability.ReportStatus) {
		err = errors.New("the server did not say what became of it")
	}
	return err
}

// refused returns why a report says that the reference was not moved, nil if it
// was.
func refused(report *packp.ReportStatus) *refusal {
	if report == nil {
		return nil
	}
	if report.UnpackStatus != "ok" {
		return &refusal{reason: "it could not store the commit: " + short(report.UnpackStatus)}
	}
	for _, status := range report.CommandStatuses {
		if status.Error() != nil {
			return &refusal{reason: short(status.Status)}
		}
	}
	return nil
}

func (d *httpDialer) dialPush(context.Context) (pushSession, error) {
	ep := *d.address.endpoint // go-git changes it when it is redirected
	client := githttp.NewClient(d.client())
	var auth transport.AuthMethod
	if d.auth != nil {
		auth = d.auth
	}
	s, err := client.NewReceivePackSession(&ep, auth)
	return &receiveSession{receiver: s}, err
}

func (d *sshDialer) dialPush(ctx context.Context) (pushSession, error) {
	s, err := d.run(ctx, transport.ReceivePackServiceName)
	if err != nil {
		return nil, err
	}
	return &receiveSession{receiver: s}, nil
}

// ReceivePack sends commands with their pack and reads what became of them.
func (s *sshSession) ReceivePack(_ context.Context, req *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error) {
	if err := req.Encode(s.in); err != nil {
		return nil, s.complaint(fmt.Errorf("send the commit: %w", err))
	}
	if !req.Capabilities.Supports(capability.ReportStatus) {
		return nil, nil
	}
	out := s.out
	if req.Capabilities.Supports(capability.Sideband64k) {
		d := sideband.NewDemuxer(sideband.Sideband64k, s.out)
		d.Progress, out = req.Progress, d
	}
	report := packp.NewReportStatus()
	if err := report.Decode(out); err != nil {
		return nil, s.complaint(fmt.Errorf("read the server's answer: %w", err))
	}
	return report, report.Error()
}
