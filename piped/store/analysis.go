package store

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// sampleBody is the JSON column of a sample.
type sampleBody struct {
	Values   []float64 `json:"values,omitempty"`
	Compared []float64 `json:"compared,omitempty"`
	Text     string    `json:"text,omitempty"`
}

// AppendAnalysisSample stores a sample of a check. It is idempotent: a sample with the same
// deployment, stage, check and position is ignored. NotFound if the deployment does not exist.
// Samples are deleted with their deployment.
func (s *Store) AppendAnalysisSample(ctx context.Context, a deploy.AnalysisSample) error {
	body, err := encode(sampleBody{a.Values, a.Compared, a.Text})
	if err == nil {
		err = s.write(ctx, func(t *tx) error {
			_, err := t.exec(ctx, `INSERT INTO analysis_samples (deployment_id, stage_id, check_id, position, application_id, name, verdict, counted, body, at)
				VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
				a.DeploymentID, a.StageID, a.Check, a.Position, a.ApplicationID, a.Name, string(a.Verdict), a.Counted, body, toMilli(a.At))
			return err
		})
	}
	if s.dialect.foreign(err) {
		err = deploy.Errorf(deploy.NotFound, "there is no deployment %s to analyse: %w", a.DeploymentID, err)
	}
	return s.fail(err, "store what check "+a.Name+" has seen")
}

// AnalysisSamples returns the samples of a stage, or with stageID "" those of the whole
// deployment, by stage, check and position.
func (s *Store) AnalysisSamples(ctx context.Context, deploymentID, stageID string) ([]deploy.AnalysisSample, error) {
	var f filter
	f.add("deployment_id = ?", deploymentID)
	f.equal("stage_id", stageID)
	as, err := all(ctx, s, scanSample, `SELECT deployment_id, stage_id, check_id, position, application_id, name, verdict, counted, body, at
		FROM analysis_samples`+f.where()+" ORDER BY stage_id, check_id, position", f.args...)
	return as, s.fail(err, "read what the analysis of deployment "+deploymentID+" has seen")
}

func scanSample(row scanner) (a deploy.AnalysisSample, err error) {
	var text string
	var at int64
	if err := row.Scan(&a.DeploymentID, &a.StageID, &a.Check, &a.Position, &a.ApplicationID, &a.Name, &a.Verdict, &a.Counted, &text, &at); err != nil {
		return a, err
	}
	var b sampleBody
	if err := decode(text, &b); err != nil {
		return a, err
	}
	a.At, a.Values, a.Compared, a.Text = fromMilli(at), b.Values, b.Compared, b.Text
	return a, nil
}

// SaveAnalysisChecks stores the checks of an analysis of one stage that starts, after those that
// the stage has already. Checks with an equal ID are replaced and retain their position. NotFound
// if the deployment does not exist. Checks are deleted with their deployment.
func (s *Store) SaveAnalysisChecks(ctx context.Context, checks []deploy.AnalysisCheck) error {
	if len(checks) == 0 {
		return nil
	}
	err := s.write(ctx, func(t *tx) error {
		before, _, err := one(ctx, t, scanNumber, "SELECT COUNT(*) FROM analysis_checks WHERE deployment_id = ? AND stage_id = ?", checks[0].DeploymentID, checks[0].StageID)
		if err != nil {
			return err
		}
		rows := make([][]any, len(checks))
		for i, c := range checks {
			body, err := encode(c)
			if err != nil {
				return err
			}
			rows[i] = []any{c.DeploymentID, c.StageID, c.ID, before + int64(i), body}
		}
		return t.insert(ctx, "analysis_checks", "deployment_id, stage_id, check_id, position, body",
			"ON CONFLICT (deployment_id, stage_id, check_id) DO UPDATE SET body = excluded.body", rows)
	})
	if s.dialect.foreign(err) {
		err = deploy.Errorf(deploy.NotFound, "there is no deployment %s to analyse: %w", checks[0].DeploymentID, err)
	}
	return s.fail(err, "store the checks of an analysis")
}

// AnalysisChecks returns the checks of a stage, or with stageID "" those of the whole
// deployment, by stage, in the order in which they were stored.
func (s *Store) AnalysisChecks(ctx context.Context, deploymentID, stageID string) ([]deploy.AnalysisCheck, error) {
	var f filter
	f.add("deployment_id = ?", deploymentID)
	f.equal("stage_id", stageID)
	list, err := all(ctx, s, func(row scanner) (c deploy.AnalysisCheck, err error) {
		var body string
		if err := row.Scan(&c.DeploymentID, &c.StageID, &c.ID, &body); err != nil {
			return c, err
		}
		return c, decode(body, &c)
	}, "SELECT deployment_id, stage_id, check_id, body FROM analysis_checks"+f.where()+" ORDER BY stage_id, position, check_id", f.args...)
	return list, s.fail(err, "read the checks of deployment "+deploymentID)
}

// SaveAnalysisPassed replaces the record of the last successful analysis of an application.
// NotFound if the application does not exist.
func (s *Store) SaveAnalysisPassed(ctx context.Context, p deploy.AnalysisPassed) error {
	err := s.write(ctx, func(t *tx) error {
		_, err := t.exec(ctx, `INSERT INTO analyses_passed (application_id, analysis, deployment_id, started_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (application_id, analysis) DO UPDATE SET deployment_id = excluded.deployment_id, started_at = excluded.started_at`,
			p.ApplicationID, p.Analysis, p.DeploymentID, toMilli(p.StartedAt))
		return err
	})
	if s.dialect.foreign(err) {
		err = deploy.Errorf(deploy.NotFound, "there is no application %s that could pass an analysis: %w", p.ApplicationID, err)
	}
	return s.fail(err, "store that analysis "+p.Analysis+" was passed")
}

// AnalysisPassed returns the record of the last successful analysis of an application; ok is
// false if there is none.
func (s *Store) AnalysisPassed(ctx context.Context, applicationID, analysis string) (p deploy.AnalysisPassed, ok bool, err error) {
	p, ok, err = one(ctx, s, func(row scanner) (p deploy.AnalysisPassed, err error) {
		var at int64
		err = row.Scan(&p.ApplicationID, &p.Analysis, &p.DeploymentID, &at)
		p.StartedAt = fromMilli(at)
		return p, err
	}, "SELECT application_id, analysis, deployment_id, started_at FROM analyses_passed WHERE application_id = ? AND analysis = ?", applicationID, analysis)
	return p, ok, s.fail(err, "read when analysis "+analysis+" was passed")
}
