package store

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

const selectAgent = "SELECT name, description, disabled, created_at, updated_at FROM agent WHERE id = 1"

func scanAgent(row scanner) (a deploy.AgentRecord, err error) {
	var createdAt, updatedAt int64
	err = row.Scan(&a.Name, &a.Description, &a.Disabled, &createdAt, &updatedAt)
	a.CreatedAt, a.UpdatedAt = fromMilli(createdAt), fromMilli(updatedAt)
	return a, err
}

// Agent returns the agent's record, the zero record before the first UpdateAgent.
func (s *Store) Agent(ctx context.Context) (deploy.AgentRecord, error) {
	a, _, err := one(ctx, s, scanAgent, selectAgent)
	return a, s.fail(err, "read the agent's record")
}

// UpdateAgent changes the agent's record and returns it as stored. fn gets the stored record,
// or on the first call one with only its times set. It may change Name, Description and
// Disabled. A change of Disabled is published as TopicRegistration for all applications.
func (s *Store) UpdateAgent(ctx context.Context, fn func(*deploy.AgentRecord)) (record deploy.AgentRecord, err error) {
	err = s.write(ctx, func(t *tx) error {
		old, known, err := one(ctx, t, scanAgent, selectAgent+t.store.dialect.forUpdate())
		if err != nil {
			return err
		}
		record = old
		if fn(&record); record == old && known {
			return nil
		}
		now := t.store.now()
		if record.UpdatedAt = milli(now); !known {
			record.CreatedAt = milli(now)
		}
		if record.Disabled != old.Disabled {
			t.changed(deploy.TopicRegistration, "", "")
		}
		return t.insert(ctx, "agent", "id, name, description, disabled, created_at, updated_at",
			`ON CONFLICT (id) DO UPDATE SET name = excluded.name, description = excluded.description,
			disabled = excluded.disabled, updated_at = excluded.updated_at`,
			[][]any{{1, record.Name, record.Description, record.Disabled, toMilli(record.CreatedAt), toMilli(record.UpdatedAt)}})
	})
	return record, s.fail(err, "store the agent's record")
}
