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

	"github.com/c785c783/piped/piped/bounded"
)

// receiver is a server that accepts packs (git-receive-pack).
type receiver interface {
	advertiser
	ReceivePack(context.Context, *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error)
}

// receiveSession pushes to a server.
type receiveSession struct{ connection[receiver] }

func newReceiveSession(server receiver) *receiveSession {
	return &receiveSession{connection[receiver]{server: server}}
}

func (s *receiveSession) push(w *watchdog, branch string, from, to plumbing.Hash, pack []byte) error {
	var messages bytes.Buffer
	req := packp.NewReferenceUpdateRequestFromCapabilities(s.capabilities)
	req.Commands = []*packp.Command{{Name: plumbing.NewBranchReferenceName(branch), Old: from, New: to}}
	req.Packfile = io.NopCloser(bytes.NewReader(pack))
	if s.capabilities.Supports(capability.Sideband64k) && req.Capabilities.Set(capability.Sideband64k) == nil {
		req.Progress = &limitedWriter{&messages, 4 << 10}
	}
	report, err := s.server.ReceivePack(w, req)
	if no := refused(report); no != nil {
		no.said = messages.String()
		return no
	}
	if err == nil && report == nil && s.capabilities.Supports(capability.ReportStatus) {
		err = errors.New("the server did not report the result")
	}
	return err
}

// refused returns the reason why the server did not move the reference, nil if it did.
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
	ep, auth := d.endpoint()
	server, err := githttp.NewClient(d.client()).NewReceivePackSession(ep, auth)
	return newReceiveSession(server), err
}

func (d *sshDialer) dialPush(ctx context.Context) (pushSession, error) {
	s, err := d.run(ctx, transport.ReceivePackServiceName)
	if err != nil {
		return nil, err
	}
	return newReceiveSession(s), nil
}

// ReceivePack sends commands with their pack and reads the result.
func (s *sshSession) ReceivePack(_ context.Context, req *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error) {
	if err := req.Encode(s.in); err != nil {
		return nil, s.complaint(fmt.Errorf("send the commit: %w", err))
	}
	if !req.Capabilities.Supports(capability.ReportStatus) {
		return nil, nil
	}
	var out io.Reader = bounded.Body(io.NopCloser(s.out), maxReport)
	if req.Capabilities.Supports(capability.Sideband64k) {
		d := sideband.NewDemuxer(sideband.Sideband64k, out)
		d.Progress, out = req.Progress, d
	}
	report := packp.NewReportStatus()
	if err := report.Decode(out); err != nil {
		return nil, s.complaint(fmt.Errorf("read the server's answer: %w", err))
	}
	return report, report.Error()
}
