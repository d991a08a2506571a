package control

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// ListCandidates lists the application configurations in Git that are not registered as
// applications of this agent.
func (s *controlService) ListCandidates(ctx context.Context, req *controlv1.ListCandidatesRequest) (*controlv1.ListCandidatesResponse, error) {
	if _, ok := controlv1.CandidateReason_name[int32(req.Reason)]; !ok {
		return nil, deploy.Errorf(deploy.Invalid, "there is no candidate reason %d: use one that control.proto names", req.Reason)
	}
	all, err := s.store.Candidates(ctx)
	if err != nil {
		return nil, err
	}
	resp := &controlv1.ListCandidatesResponse{}
	places := map[string]deploy.Places{}
	for _, c := range all {
		known, ok := places[c.Git.RepoID]
		if !ok {
			if known, err = s.store.Places(ctx, c.Git.RepoID); err != nil {
				return nil, err
			}
			places[c.Git.RepoID] = known
		}
		m := candidate(c, known.ID(c.Git))
		if (req.RepositoryId == "" || req.RepositoryId == c.Git.RepoID) && (req.Reason == 0 || req.Reason == m.Reason) {
			resp.Candidates = append(resp.Candidates, m)
		}
	}
	return resp, holdsAll(resp.Candidates, "candidates", "name a repository or a reason")
}

var candidateReasons = map[deploy.CandidateState]controlv1.CandidateReason{
	deploy.CandidateUnregistered: controlv1.CandidateReason_CANDIDATE_REASON_UNREGISTERED,
	deploy.CandidateUnsupported:  controlv1.CandidateReason_CANDIDATE_REASON_UNSUPPORTED,
	deploy.CandidateDeleted:      controlv1.CandidateReason_CANDIDATE_REASON_DELETED,
}

// candidate converts a candidate; id is its current or future application ID.
func candidate(c deploy.Candidate, id string) *controlv1.Candidate {
	return &controlv1.Candidate{
		ApplicationId: id, Name: text(c.Name), Kind: text(c.Kind), GitPath: gitPath(c.Git),
		Labels: texts(c.Labels), Reason: candidateReasons[c.State], Detail: text(c.Reason),
	}
}
