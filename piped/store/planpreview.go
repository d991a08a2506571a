package store

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// AnswerPlanPreview stores the result of a plan preview and completes its command with status,
// in one transaction. The error of a failed preview becomes the command's reason. The result
// for a pull request is published as an event. Conflict if the command was completed before.
func (s *Store) AnswerPlanPreview(ctx context.Context, p deploy.PlanPreview, status deploy.CommandStatus) error {
	results, err := encode(p.Results)
	if err != nil {
		return s.fail(err, "answer plan preview "+p.CommandID)
	}
	outline, err := encode(p.Outlines())
	if err == nil {
		err = s.write(ctx, func(t *tx) error {
			c, err := t.openCommand(ctx, p.CommandID)
			if err != nil {
				return err
			}
			metadata := map[string]string{deploy.MetaReason: p.Error} // empty values are not stored
			if err := t.setMetadata(ctx, c, metadata, status); err != nil {
				return err
			}
			if asked := c.PlanPreview; asked != nil && asked.PullRequest != 0 {
				event, err := deploy.PlanPreviewAnswered(c.ID, *asked, p.At)
				if err != nil {
					return err
				}
				t.events = append(t.events, event)
			}
			_, err = t.exec(ctx, "INSERT INTO plan_previews (command_id, error, results, outline, at) VALUES (?, ?, ?, ?, ?)",
				p.CommandID, p.Error, results, outline, toMilli(p.At))
			return err
		})
	}
	return s.fail(err, "answer plan preview "+p.CommandID)
}

// insertPlanPreviewRequest lists the plan preview that a command requests, and records the
// commit of its pull request.
func (t *tx) insertPlanPreviewRequest(ctx context.Context, c deploy.Command) error {
	p := c.PlanPreview
	_, err := t.exec(ctx, `INSERT INTO plan_preview_requests (command_id, repo_id, head_branch, pull_request, commander, account, requested_at)
		VALUES (?, ?, ?, ?, ?, ?, ?)`, c.ID, p.RepoID, p.HeadBranch, p.PullRequest, c.Commander, c.Account, toMilli(c.CreatedAt))
	if err != nil {
		return err
	}
	return t.linkPullRequest(ctx, deploy.PullRequestCommit{
		CommitRef: deploy.CommitRef{RepoID: p.RepoID, Hash: p.HeadCommit}, Number: p.PullRequest, Link: deploy.LinkHead,
	})
}

// PlanPreview returns the result of a plan preview. NotFound if there is none or it was
// deleted.
func (s *Store) PlanPreview(ctx context.Context, commandID string) (deploy.PlanPreview, error) {
	p, ok, err := one(ctx, s, scanPlanPreview, "SELECT command_id, error, results, at FROM plan_previews WHERE command_id = ?", commandID)
	if err == nil && !ok {
		err = deploy.Errorf(deploy.NotFound, "there is no result of plan preview %s", commandID)
	}
	return p, s.fail(err, "read plan preview "+commandID)
}

func scanPlanPreview(row scanner) (p deploy.PlanPreview, err error) {
	var results string
	var at int64
	if err := row.Scan(&p.CommandID, &p.Error, &results, &at); err != nil {
		return p, err
	}
	p.At = fromMilli(at)
	return p, decode(results, &p.Results)
}

// PlanPreviewQuery selects plan previews; zero fields do not restrict.
type PlanPreviewQuery struct {
	CommandIDs  []string
	RepoID      string
	HeadBranch  string
	PullRequest int
	Statuses    []deploy.CommandStatus
	Requester   *deploy.Requester
	Limit       int // 0 means all
	Cursor      string
}

const selectPlanPreviewBrief = `SELECT r.command_id, r.commander, c.body, c.status, r.requested_at,
	COALESCE(p.outline, ''), COALESCE(p.error, ''), COALESCE(p.at, 0)
	FROM plan_preview_requests r JOIN commands c ON c.id = r.command_id LEFT JOIN plan_previews p ON p.command_id = r.command_id`

// PlanPreviews returns the plan previews that have a result or are being built, the last
// requested first, and the cursor of the next page, "" if there is none.
func (s *Store) PlanPreviews(ctx context.Context, q PlanPreviewQuery) ([]deploy.PlanPreviewBrief, string, error) {
	f, err := q.filter()
	if err != nil {
		return nil, "", err
	}
	list, err := all(ctx, s, scanPlanPreviewBrief, f.limit(selectPlanPreviewBrief+f.where()+" ORDER BY r.requested_at DESC, r.command_id", extra(q.Limit)), f.args...)
	if err != nil || q.Limit == 0 || len(list) <= q.Limit {
		return list, "", s.fail(err, "list plan previews")
	}
	last := list[q.Limit-1]
	return list[:q.Limit], cursorAt(last.RequestedAt, last.CommandID), nil
}

func (q PlanPreviewQuery) filter() (*filter, error) {
	f := &filter{}
	f.add("(c.status = 'NOT_HANDLED_YET' OR p.at IS NOT NULL)") // a result that was removed is no preview
	in(f, "r.command_id", q.CommandIDs)
	f.equal("r.repo_id", q.RepoID)
	f.equal("r.head_branch", q.HeadBranch)
	if q.PullRequest != 0 {
		f.add("r.pull_request = ?", q.PullRequest)
	}
	if q.Requester != nil {
		f.add("(r.account <> '' AND r.account = ? OR r.account = '' AND r.commander = ?)", q.Requester.Account, q.Requester.Subject) // as Requester.Requested
	}
	in(f, "c.status", q.Statuses)
	if q.Cursor == "" {
		return f, nil
	}
	p, err := parseCursor(q.Cursor)
	f.add("r.requested_at <= ? AND (r.requested_at < ? OR r.command_id > ?)", p.UpdatedAt, p.UpdatedAt, p.ID)
	return f, err
}

func scanPlanPreviewBrief(row scanner) (b deploy.PlanPreviewBrief, err error) {
	var bodyText, outline string
	var requestedAt, at int64
	if err := row.Scan(&b.CommandID, &b.Commander, &bodyText, &b.Status, &requestedAt, &outline, &b.Error, &at); err != nil {
		return b, err
	}
	b.RequestedAt, b.At = fromMilli(requestedAt), fromMilli(at)
	var body commandBody
	if err := decode(bodyText, &body); err != nil {
		return b, err
	}
	if body.PlanPreview != nil {
		b.Request = *body.PlanPreview
	}
	if outline == "" {
		return b, nil
	}
	return b, decode(outline, &b.Outlines)
}

// RemovePlanPreviews deletes the results of plan previews that are older than before, and the
// requests without a result that are.
func (s *Store) RemovePlanPreviews(ctx context.Context, before time.Time) error {
	err := s.write(ctx, func(t *tx) error {
		if _, err := t.exec(ctx, "DELETE FROM plan_previews WHERE at < ?", toMilli(before)); err != nil {
			return err
		}
		_, err := t.exec(ctx, `DELETE FROM plan_preview_requests WHERE requested_at < ?
			AND NOT EXISTS (SELECT 1 FROM plan_previews p WHERE p.command_id = plan_preview_requests.command_id)
			AND NOT EXISTS (SELECT 1 FROM commands c WHERE c.id = plan_preview_requests.command_id AND c.status = 'NOT_HANDLED_YET')`, toMilli(before))
		return err
	})
	return s.fail(err, "remove old plan previews")
}
