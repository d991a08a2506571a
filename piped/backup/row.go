package backup

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/c785c783/piped/piped/store"
)

// decode converts the JSON values of a row to the types of its columns, in place.
func decode(t store.Table, row []any) (err error) {
	if len(row) != len(t.Columns) {
		return fmt.Errorf("%d values for %d columns", len(row), len(t.Columns))
	}
	for i, c := range t.Columns {
		if row[i], err = value(c.Type, row[i]); err != nil {
			return fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	return nil
}

func value(kind store.ColumnType, v any) (any, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		switch kind {
		case store.Text:
			return v, nil
		case store.Bytes:
			return base64.StdEncoding.DecodeString(v)
		}
	case json.Number:
		if kind == store.Number {
			return v.Int64()
		}
	case bool:
		if kind == store.Boolean {
			return v, nil
		}
	}
	return nil, fmt.Errorf("%T is no %s", v, kind)
}
