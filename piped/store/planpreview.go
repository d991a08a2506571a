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
			_, err = t.exec(ctx, "INSERT INTO plan_previews (command_id, error, results, at) VALUES (?, ?, ?, ?)", p.CommandID, p.Error, results, toMilli(p.At))
			return err
		})
	}
	return s.fail(err, "answer plan preview "+p.CommandID)
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

// RemovePlanPreviews deletes the results of plan previews that are older than before.
func (s *Store) RemovePlanPreviews(ctx context.Context, before time.Time) error {
	err := s.write(ctx, func(t *tx) error {
		_, err := t.exec(ctx, "DELETE FROM plan_previews WHERE at < ?", toMilli(before))
		return err
	})
	return s.fail(err, "remove old plan previews")
}
