export default function Page() {
  return <p>ask at /api/ask</p>;
}
