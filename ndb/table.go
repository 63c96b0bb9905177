package ndb

// Type is the type of a column's values.
type Type uint8

// Types. An array type holds Length values; a character or binary type at most Length bytes.
const (
	TypeInt8 Type = iota + 1
	TypeUint8
	TypeInt16
	TypeUint16
	TypeInt32
	TypeUint32
	TypeInt64
	TypeUint64
	TypeFloat
	TypeDouble
	TypeChar      // fixed length, padded with spaces
	TypeVarchar   // up to Length bytes
	TypeBinary    // fixed length, padded with zero bytes
	TypeVarbinary // up to Length bytes
)

// Column describes a column.
type Column struct {
	Name     string
	Type     Type
	Length   int  // bytes of a character or binary type; values of a TypeUint32 array; 0 means 1
	Nullable bool // may be NULL
	Key      bool // part of the primary key, in the order of the columns
	Dist     bool // part of the distribution key, which is part of the primary key; none: the whole primary key
}

// TableDef describes a table to be created.
type TableDef struct {
	Database  string
	Name      string
	Columns   []Column
	NoLogging bool // rows are not logged: the table is empty after a restart of the whole cluster
	Fragments int  // 0: the cluster's default
}

// TableName names a table of the cluster.
type TableName struct {
	ID        int
	Version   int
	Database  string
	Name      string
	NoLogging bool
}
