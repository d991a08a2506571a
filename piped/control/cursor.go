package control

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// cursor is what a client's opaque cursor holds: the order fields of the last
// row it was given.
type cursor struct {
	UpdatedAt int64  `json:"u"` // unix milliseconds
	ID        string `json:"i"`
}

func encodeCursor(p Position) string {
	data, err := json.Marshal(cursor{UpdatedAt: p.UpdatedAt.UnixMilli(), ID: p.ID})
	if err != nil {
		return "" // a number and a string always encode
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// decodeCursor returns the zero position for an empty cursor.
func decodeCursor(s string) (Position, error) {
	if s == "" {
		return Position{}, nil
	}
	var c cursor
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil || c.ID == "" {
		return Position{}, status.Error(codes.InvalidArgument, "invalid request: the cursor is not one this agent gave; leave it empty for the first page")
	}
	return Position{UpdatedAt: time.UnixMilli(c.UpdatedAt).UTC(), ID: c.ID}, nil
}
