package store

import (
	"context"
	"maps"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// commandBody is the JSON column of a command.
type commandBody struct {
	Commander       string             `json:"commander,omitempty"`
	Account         string             `json:"account,omitempty"`
	CommanderGroups []string           `json:"commanderGroups,omitempty"`
	Strategy        deploy.Strategy    `json:"strategy,omitempty"`
	Commit          string             `json:"commit,omitempty"`
	Reason          string             `json:"reason,omitempty"`
	ForceRollback   bool               `json:"forceRollback,omitempty"`
	ForceNoRollback bool               `json:"forceNoRollback,omitempty"`
	OverrideWindows bool               `json:"overrideWindows,omitempty"`
	WaitForRunning  bool               `json:"waitForRunning,omitempty"`
	PermitPrune     []deploy.ObjectRef `json:"permitPrune,omitempty"`
	ChainID         string             `json:"chainID,omitempty"`
	ChainBlock      int                `json:"chainBlock,omitempty"`
	Cascade         bool               `json:"cascade,omitempty"`
	Accept          bool               `json:"accept,omitempty"`
	Token           string             `json:"token,omitempty"`
	LockID          string             `json:"lockID,omitempty"`
	SupersededBy    string             `json:"supersededBy,omitempty"`

	PlanPreview *deploy.PlanPreviewRequest `json:"planPreview,omitempty"`
}

func bodyOf(c deploy.Command) commandBody {
	return commandBody{
		Commander: c.Commander, Account: c.Account, CommanderGroups: c.CommanderGroups, Strategy: c.Strategy, Commit: c.Commit, Reason: c.Reason,
		ForceRollback: c.ForceRollback, ForceNoRollback: c.ForceNoRollback, OverrideWindows: c.OverrideWindows, PermitPrune: c.PermitPrune,
		ChainID: c.ChainID, ChainBlock: c.ChainBlock,
		Cascade: c.Cascade, Accept: c.Accept, Token: c.Token, LockID: c.LockID, PlanPreview: c.PlanPreview, WaitForRunning: c.WaitForRunning,
		SupersededBy: c.SupersededBy,
	}
}

const selectCommand = `SELECT id, type, application_id, deployment_id, stage_id, body, status, metadata, created_at, updated_at, handled_at FROM commands`

func scanCommand(row scanner) (c deploy.Command, err error) {
	var bodyText, metadata string
	var createdAt, updatedAt, handledAt int64
	if err := row.Scan(&c.ID, &c.Type, &c.ApplicationID, &c.DeploymentID, &c.StageID, &bodyText, &c.Status, &metadata,
		&createdAt, &updatedAt, &handledAt); err != nil {
		return c, err
	}
	var body commandBody
	if err := decode(bodyText, &body); err != nil {
		return c, err
	}
	c.Commander, c.Account, c.CommanderGroups = body.Commander, body.Account, body.CommanderGroups
	c.Strategy, c.ForceRollback, c.ForceNoRollback = body.Strategy, body.ForceRollback, body.ForceNoRollback
	c.Commit, c.Reason, c.OverrideWindows, c.WaitForRunning = body.Commit, body.Reason, body.OverrideWindows, body.WaitForRunning
	c.PermitPrune, c.ChainID, c.ChainBlock = body.PermitPrune, body.ChainID, body.ChainBlock
	c.Cascade, c.Accept, c.Token, c.LockID, c.PlanPreview, c.SupersededBy = body.Cascade, body.Accept, body.Token, body.LockID, body.PlanPreview, body.SupersededBy
	c.CreatedAt, c.UpdatedAt, c.HandledAt = fromMilli(createdAt), fromMilli(updatedAt), fromMilli(handledAt)
	return c, decode(metadata, &c.Metadata)
}

// CreateCommand stores a new command as open and returns it as stored. Exists if there is a
// command with that ID.
func (s *Store) CreateCommand(ctx context.Context, c deploy.Command) (deploy.Command, error) {
	var created deploy.Command
	err := s.write(ctx, func(t *tx) (err error) {
		created, err = t.insertCommand(ctx, c)
		return err
	})
	if err != nil {
		return deploy.Command{}, s.fail(err, "create command "+c.ID)
	}
	return created, nil
}

// insertCommand stores a command as open and publishes it.
func (t *tx) insertCommand(ctx context.Context, c deploy.Command) (deploy.Command, error) {
	c.Status, c.CreatedAt, c.HandledAt = deploy.CommandOpen, t.store.now(), time.Time{}
	c.UpdatedAt = c.CreatedAt
	body, err := encode(bodyOf(c))
	if err != nil {
		return c, err
	}
	metadata, err := encode(c.Metadata)
	if err != nil {
		return c, err
	}
	t.changed(deploy.TopicCommand, c.ID, c.ApplicationID)
	_, err = t.exec(ctx, `INSERT INTO commands (id, type, application_id, deployment_id, stage_id, body, status, metadata, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, c.ID, string(c.Type), c.ApplicationID, c.DeploymentID, c.StageID, body,
		string(c.Status), metadata, toMilli(c.CreatedAt), toMilli(c.UpdatedAt))
	if t.store.dialect.unique(err) {
		err = deploy.Errorf(deploy.Exists, "command %s exists already", c.ID)
	}
	if c.PlanPreview != nil && err == nil {
		err = t.insertPlanPreviewRequest(ctx, c)
	}
	return c, err
}

// Command returns a command. NotFound if there is none.
func (s *Store) Command(ctx context.Context, id string) (deploy.Command, error) {
	c, ok, err := one(ctx, s, scanCommand, selectCommand+" WHERE id = ?", id)
	if err == nil && !ok {
		err = noCommand(id)
	}
	return c, s.fail(err, "read command "+id)
}

func noCommand(id string) error { return deploy.Errorf(deploy.NotFound, "there is no command %s", id) }

// OpenCommands returns the open commands of these types, of all types if none is given, the
// oldest first.
func (s *Store) OpenCommands(ctx context.Context, types ...deploy.CommandType) ([]deploy.Command, error) {
	var f filter
	f.add("status = 'NOT_HANDLED_YET'")
	in(&f, "type", types)
	cs, err := all(ctx, s, scanCommand, selectCommand+f.where()+" ORDER BY created_at, id", f.args...)
	return cs, s.fail(err, "list open commands")
}

// FinishCommand completes a command: it sets the status and merges metadata into that of the
// command. Conflict if it was completed before.
func (s *Store) FinishCommand(ctx context.Context, id string, status deploy.CommandStatus, metadata map[string]string) error {
	if status == deploy.CommandOpen {
		return deploy.Errorf(deploy.Illegal, "command %s cannot be finished as %s", id, status)
	}
	err := s.write(ctx, func(t *tx) error { return t.finishCommand(ctx, id, status, metadata) })
	return s.fail(err, "finish command "+id)
}

// NoteCommand merges metadata into that of an open command, to show its progress. An empty
// value removes a key. Conflict if the command was completed before.
func (s *Store) NoteCommand(ctx context.Context, id string, metadata map[string]string) error {
	err := s.write(ctx, func(t *tx) error {
		c, err := t.openCommand(ctx, id)
		if err != nil {
			return err
		}
		return t.setMetadata(ctx, c, metadata, deploy.CommandOpen)
	})
	return s.fail(err, "note what becomes of command "+id)
}

// openCommand reads and locks a command. Conflict if it is not open.
func (t *tx) openCommand(ctx context.Context, id string) (deploy.Command, error) {
	c, ok, err := one(ctx, t, scanCommand, selectCommand+" WHERE id = ?"+t.store.dialect.forUpdate(), id)
	switch {
	case err != nil:
		return c, err
	case !ok:
		return c, noCommand(id)
	case c.Status != deploy.CommandOpen:
		return c, deploy.Errorf(deploy.Conflict, "command %s was answered before: it is %s", id, c.Status)
	}
	return c, nil
}

// finishCommand is FinishCommand in the transaction t.
func (t *tx) finishCommand(ctx context.Context, id string, status deploy.CommandStatus, metadata map[string]string) error {
	c, err := t.openCommand(ctx, id)
	if err != nil {
		return err
	}
	if c.ChainID != "" && status != deploy.CommandSucceeded {
		t.changed(deploy.TopicChain, c.ChainID, c.ApplicationID) // the chain's node has failed
	}
	return t.setMetadata(ctx, c, metadata, status)
}

// setMetadata merges metadata into that of a command and sets its status.
func (t *tx) setMetadata(ctx context.Context, c deploy.Command, metadata map[string]string, status deploy.CommandStatus) error {
	merged := maps.Clone(c.Metadata)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, metadata)
	maps.DeleteFunc(merged, func(_, value string) bool { return value == "" })
	text, err := encode(merged)
	if err != nil {
		return err
	}
	t.changed(deploy.TopicCommand, c.ID, c.ApplicationID)
	now, handled := toMilli(t.store.now()), int64(0)
	if status != deploy.CommandOpen {
		handled = now
	}
	_, err = t.exec(ctx, "UPDATE commands SET status = ?, metadata = ?, updated_at = ?, handled_at = ? WHERE id = ?", string(status), text, now, handled, c.ID)
	return err
}
